"""The mathematics of group counterfactual attributions: torch only."""
