// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ask probes a container once, from its node, as the kubelet does.
func ask(ctx context.Context, w *podWorker, c *container) bool {
	probe := c.spec.ReadinessProbe
	ctx, cancel := context.WithTimeout(ctx, time.Duration(ptrOr(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	dial := DialFrom(w.kubelet.node.Host)
	address := func(port intstr.IntOrString) string {
		return net.JoinHostPort(w.network.ipv4.String(), strconv.Itoa(portNumber(c.spec, port)))
	}
	switch {
	case probe.HTTPGet != nil:
		client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
		url := "http://" + address(probe.HTTPGet.Port) + probe.HTTPGet.Path
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		answer, err := client.Do(request)
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode >= 200 && answer.StatusCode < 400
	case probe.TCPSocket != nil:
		connection, err := dial(ctx, "tcp", address(probe.TCPSocket.Port))
		if err != nil {
			return false
		}
		connection.Close()
		return true
	default:
		return true
	}
}

// portNumber returns the number of a port that may be named.
func portNumber(spec *corev1.Container, port intstr.IntOrString) int {
	if port.Type == intstr.Int {
		return port.IntValue()
	}
	for _, p := range spec.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort)
		}
	}
	return 0
}
