// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxName bounds the names of services and backends in a configuration, in bytes: no letter of a Kubernetes name
// takes more than one.
const maxName = 64

// hashDigits is how many hexadecimal digits of a hash end a name that is too long.
const hashDigits = 16

// ServiceName returns the name of the balancer's service for a port of a Kubernetes Service at its IPv4 or IPv6
// address: NAMESPACE:NAME:PORT, the port by its name or, where it has none, by its number, and ":v6" behind it for
// IPv6. Names of Kubernetes objects have no colon, so no two ports have one name.
func ServiceName(service *corev1.Service, port *corev1.ServicePort, v6 bool) string {
	name := port.Name
	if name == "" { // the only port of its Service
		name = strconv.Itoa(int(port.Port))
	}
	parts := []string{service.Namespace, service.Name, name}
	if v6 {
		parts = append(parts, "v6")
	}
	return ShortenName(strings.Join(parts, ":"))
}

// ShortenName returns a name that is too long in a shorter form, which no other name has: an underscore, which
// names of Kubernetes do not have, and a hash.
func ShortenName(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName-hashDigits-1] + "_" + hex.EncodeToString(sum[:])[:hashDigits]
}

// BackendNames gives the backends of a service names of their own.
type BackendNames map[string]bool

// Assign returns a name, with the endpoint behind it where another backend has it already.
func (n BackendNames) Assign(name, endpoint string) string {
	name = ShortenName(name)
	if n[name] {
		name = ShortenName(name + ":" + endpoint)
	}
	n[name] = true
	return name
}
