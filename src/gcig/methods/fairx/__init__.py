"""FairX: networks whose reasons do not depend on the group."""
