"""What a run keeps on disk, so that it can be resumed and believed: the ledger is the truth among it."""
