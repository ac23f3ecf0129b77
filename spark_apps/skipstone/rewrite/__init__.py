"""Arrow kernels that read and write data files, inside Spark tasks or without Spark. Knows no run and no index."""
