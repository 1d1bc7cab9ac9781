"""Programs of 60 drawn calls on the vendor's wheel and on the dialect: ``make test-mooncake``."""
