"""Before a Rest catalog: requests go on with the credentials of whoever sent them."""
