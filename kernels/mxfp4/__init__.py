"""MXFP4 itself: arithmetic, layouts, packed weights, the reference product."""
