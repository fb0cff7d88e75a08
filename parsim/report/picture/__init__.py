"""Pictures: timelines, curves and graphs of links come in, PNG and SVG leave."""
