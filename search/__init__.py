"""The search: spaces, studies, evaluators, results, reports and file formats."""
