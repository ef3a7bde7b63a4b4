"""The libraries that stand in the driver's place, with the fence and the driver behind them."""
