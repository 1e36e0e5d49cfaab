"""Who may do what: the password file and the access rules, shared by the gateway and the commands that edit them."""
