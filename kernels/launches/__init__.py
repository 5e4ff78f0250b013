"""Programs: buffers, launches, and which workgroups compute what."""
