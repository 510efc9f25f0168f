"""The one epoch loop, and the seeds, threads and devices that training runs with."""
