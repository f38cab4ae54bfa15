"""The suite that the advice is judged by: federations from real data, and what each method makes of them."""
