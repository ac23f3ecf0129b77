"""What objects say, judged and put together for people: trees, causes, pods. Pure; nothing here is printed or read."""
