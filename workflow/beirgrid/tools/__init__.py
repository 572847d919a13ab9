"""Commands around a grid: plan, status, calibration."""
