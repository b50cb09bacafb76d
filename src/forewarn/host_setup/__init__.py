"""169.254.169.254 on a KVM host: the address, rules for each port of a guest, and DHCP options."""
