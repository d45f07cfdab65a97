#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# kubeconfig.sh FILE [DURATION]: writes FILE, by which jeoul-kubernetes reaches the cluster of the current context as the
# account of rbac.yaml, with a token for DURATION (8760h), which the API server may shorten.
set -eu

file=$1
token=$(kubectl create token jeoul-balancer --namespace jeoul-system --duration "${2:-8760h}")
cluster=$(kubectl config view --raw --minify --flatten -o jsonpath='{.clusters[0].cluster}')
umask 077
cat >"$file" <<EOF
apiVersion: v1
kind: Config
clusters:
  - {name: cluster, cluster: $cluster}
users:
  - {name: jeoul-balancer, user: {token: "$token"}}
contexts:
  - {name: cluster, context: {cluster: cluster, user: jeoul-balancer}}
current-context: cluster
EOF
