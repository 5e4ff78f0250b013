"""The search itself: study, samplers, points, what is tried first."""
