"""LoadJobs and MergeJobs: the next step of one job, its attempts, its confirm runs and its status.

Jobs reconcile under their Table's key, so the table's decider calls ``deciding``. Pure.
"""
