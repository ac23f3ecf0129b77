"""Where kernels run, in Spark or in this process, and how a task's error reaches the driver. Knows no kernel."""
