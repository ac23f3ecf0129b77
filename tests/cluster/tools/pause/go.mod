module skipstone.dev/tests/cluster/tools/pause

go 1.24.0
