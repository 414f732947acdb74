"""Train and use agents that play games: the fleet, the games, search and networks of zerofleet from Python."""
