"""Which files a source key can touch, by arrays. Called by merge runs; knows no run and rewrites nothing."""
