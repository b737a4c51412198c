"""What a policy says about itself. Pure: from what was seen to what people read."""
