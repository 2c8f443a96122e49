"""The built-in subjects, one billing job a file: module naive_ttl is the variant naive-ttl, its entry is run(job)."""
