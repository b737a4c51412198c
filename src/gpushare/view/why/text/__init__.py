"""What `why` says to people: verdict first, evidence second, ways out third. Pure, from an `Explanation`."""
