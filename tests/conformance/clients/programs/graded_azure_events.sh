#!/bin/sh
# Has Pacemaker's agent $1 look every second, as it is, and run the hooks of the conformance kit when
# it puts its node in standby and online again. Pacemaker's commands are those in ./pacemaker.
set -u
programs=$(dirname "$0")/pacemaker
bin=$FOREWARN_CONFORMANCE_FOLDER/bin
export CLUSTER=$FOREWARN_CONFORMANCE_FOLDER/cluster NODES='web-0 web-1' PROGRAMS=$programs
export HA_LOGFILE=$FOREWARN_CONFORMANCE_FOLDER/agent.log PATH="$bin:$programs:$PATH"
mkdir -p "$bin" "$CLUSTER"
cat > "$bin/crm_attribute" << 'EOF'
#!/bin/sh
case "$*" in
  *'#health-azure'*-1000000*|*standby*on*) "$FOREWARN_CONFORMANCE_PREPARE" || exit ;;
  *'#health-azure'*--query*|*standby*--query*|*--query*) ;;
  *'#health-azure'*|*standby*) "$FOREWARN_CONFORMANCE_RECOVER" || exit ;;
esac
exec "$PROGRAMS/crm_attribute" "$@"
EOF
chmod +x "$bin/crm_attribute"
# To Pacemaker, a monitor that fails is a resource that has failed.
while :; do
  "$1" monitor || exit
  sleep 1
done
