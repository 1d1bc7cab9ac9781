"""Programs of 50 drawn calls on the vendor's wheel and on the dialect: ``make test-nixl``."""
