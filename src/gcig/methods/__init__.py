"""FairX and the methods that it is compared with: one file each, one interface."""
