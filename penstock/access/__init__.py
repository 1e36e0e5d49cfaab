"""Users and rights: the password file and the access rules, for the services and the commands that edit them."""
