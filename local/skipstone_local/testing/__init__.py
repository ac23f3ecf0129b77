"""``skipstone local test``: manifests, sample data and expectations in a YAML file, judged on a lake of their own."""
