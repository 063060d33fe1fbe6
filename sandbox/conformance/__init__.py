"""The containment part of the conformance suite: attacks from inside a sandbox, told by what the host sees of them."""
