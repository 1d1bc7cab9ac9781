"""The type stubs of the modules that dialects serve, which the build writes beside the package."""
