"""Container images as incremental targets: what they are made of, who builds them."""
