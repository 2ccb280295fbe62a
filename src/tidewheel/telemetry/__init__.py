"""What an app tells of its work: metrics, and spans where an integration asks for them."""
