"""Which client should answer a query: posteriors over clients, rules that use them, and what they are worth."""
