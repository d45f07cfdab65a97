// SPDX-License-Identifier: Apache-2.0

// Package proxy has the subjects that accept the clients' connections on the balancer, and open their own connections
// to servers: HAProxy, nginx and Envoy.
package proxy

import "github.com/jeoul/jeoul/internal/weigh/bench/subject"

// Subjects are the subjects of this package, in the order of their presentation.
var Subjects = []subject.Subject{HAProxyHTTP{}, haproxyTCP{}, nginxHTTP{}, nginxStream{}, envoy{}}
