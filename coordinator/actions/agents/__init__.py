"""Writing agents, their capabilities and blueprints, and runners."""
