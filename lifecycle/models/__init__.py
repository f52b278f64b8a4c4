"""From a directory of files to a served model: intake, registration, promotion, deployment."""
