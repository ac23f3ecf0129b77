# Prints the targets of Makefiles in groups: awk -f scripts/help.awk Makefile ...
# A target is in the first group whose pattern its name matches; within a group, targets are sorted.
BEGIN {
    FS = ":.*## "
    count = split("Daily work|Tests|Demonstration|Local cluster|Release and docs|Long random tests|Benchmarks", titles, "|")
    patterns[1] = "^(help|setup|fmt|lint|generate|verify|test-quick|test-one|coverage|clean)$"
    patterns[2] = "^test"
    patterns[3] = "demo"
    patterns[4] = "^(cluster|kube-)"
    patterns[6] = "^soak-"
    patterns[7] = "^bench-"
    patterns[5] = "."
    order = "1 2 3 4 6 7 5"
}

/^[a-z0-9-]+:.*## / {
    total = split(order, tried, " ")
    for (i = 1; i <= total && $1 !~ patterns[tried[i]]; i++);
    lines[tried[i]] = lines[tried[i]] sprintf("  %-20s %s\n", $1, $2)
}

END {
    for (i = 1; i <= count; i++) {
        printf "%s%s\n", (i > 1 ? "\n" : ""), titles[i]
        printf "%s", lines[i] | "sort"
        close("sort")
        fflush()
    }
}
