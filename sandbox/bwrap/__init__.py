"""The provider that contains by namespaces alone, with bubblewrap: for machines without a container engine."""
