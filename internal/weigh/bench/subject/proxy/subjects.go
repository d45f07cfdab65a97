// SPDX-License-Identifier: Apache-2.0

// Package proxy has the subjects that accept the clients' connections on the balancer, and make their own to servers:
// HAProxy, nginx and Envoy.
package proxy

import "github.com/jeoul/jeoul/internal/weigh/bench/subject"

// Subjects are those of this package, in the order in which a person should see them.
var Subjects = []subject.Subject{HAProxyHTTP{}, haproxyTCP{}, nginxHTTP{}, nginxStream{}, envoy{}}
