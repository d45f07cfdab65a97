// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// engineFamilies are there where a service has the mode proxy.
var engineFamilies = []metric[*ops.ProxyEngine]{
	{family{"jeoul_proxy_up", "1 where the proxy engine of the services of mode proxy runs.", gauge,
		[]string{"version"}},
		always(func(e *ops.ProxyEngine) float64 { return boolValue(e.PID != 0) })},
	{family{"jeoul_proxy_workers",
		"Processes of the proxy engine, those included that a reload has replaced and that still have connections.",
		gauge, nil},
		always(func(e *ops.ProxyEngine) float64 { return float64(e.Workers) })},
	{family{"jeoul_proxy_reloads_total", "Reloads of the proxy engine since it was started.", counter, nil},
		always(func(e *ops.ProxyEngine) float64 { return float64(e.Reloads) })},
}

// ofProxy is a value of services of mode proxy.
func ofProxy(value func(*ops.ProxiedService) uint64) func(*ops.Service) (float64, bool) {
	return func(s *ops.Service) (float64, bool) {
		if s.Proxy == nil {
			return 0, false
		}
		return float64(value(s.Proxy)), true
	}
}

var proxyFamilies = []metric[*ops.Service]{
	{family{"jeoul_service_proxy_connections_total", "Connections of clients that a service of mode proxy has taken.",
		counter, []string{"service"}},
		ofProxy(func(p *ops.ProxiedService) uint64 { return p.Connections })},
	{family{"jeoul_service_proxy_received_bytes_total", "Bytes that clients have sent on them.", counter,
		[]string{"service"}},
		ofProxy(func(p *ops.ProxiedService) uint64 { return p.BytesIn })},
	{family{"jeoul_service_proxy_sent_bytes_total", "Bytes that were sent to clients on them.", counter,
		[]string{"service"}},
		ofProxy(func(p *ops.ProxiedService) uint64 { return p.BytesOut })},
	{family{"jeoul_service_proxy_denied_total", "Connections and requests that the rules of a service of mode proxy have turned away.", counter,
		[]string{"service"}},
		ofProxy(func(p *ops.ProxiedService) uint64 { return p.Denied })},
	{family{"jeoul_service_proxy_requests_total", "HTTP requests of clients.", counter, []string{"service"}},
		ofProxy(func(p *ops.ProxiedService) uint64 { return p.Requests })},
	{family{"jeoul_service_proxy_queued", "Requests and connections that wait for a backend.", gauge,
		[]string{"service"}},
		ofProxy(func(p *ops.ProxiedService) uint64 { return p.Queued })},
}

// responseCount is a count of a service's responses.
type responseCount struct {
	service, class string
	n              uint64
}

// responsesTotal has a series for each class of status codes.
var responsesTotal = metric[responseCount]{
	family{"jeoul_service_proxy_responses_total", "HTTP responses to clients, by the first digit of their status.",
		counter, []string{"service", "class"}},
	always(func(r responseCount) float64 { return float64(r.n) })}

// ofProxied is a value of backends of mode proxy.
func ofProxied(value func(*ops.Proxied) uint64) func(member) (float64, bool) {
	return func(b member) (float64, bool) {
		if b.Proxied == nil {
			return 0, false
		}
		return float64(value(b.Proxied)), true
	}
}

var proxiedFamilies = []metric[member]{
	{family{"jeoul_backend_proxy_requests_total", "HTTP requests that a backend of mode proxy has answered.", counter,
		backendLabels},
		ofProxied(func(p *ops.Proxied) uint64 { return p.Requests })},
	{family{"jeoul_backend_proxy_server_errors_total",
		"Those of them that it has answered with a status of 500 or more.", counter, backendLabels},
		ofProxied(func(p *ops.Proxied) uint64 { return p.Responses.ServerError })},
	{family{"jeoul_backend_proxy_failed_total", "Connections to a backend of mode proxy that could not be made.",
		counter, backendLabels},
		ofProxied(func(p *ops.Proxied) uint64 { return p.Failed })},
	{family{"jeoul_backend_proxy_retried_total", "Connections that were tried again, there or at another backend.",
		counter, backendLabels},
		ofProxied(func(p *ops.Proxied) uint64 { return p.Retried + p.Redispatched })},
}

// engineMetrics makes the families of the proxy engine.
func engineMetrics(engine *ops.ProxyEngine) []metricFamily {
	if engine == nil {
		return nil
	}
	return series(engineFamilies, []*ops.ProxyEngine{engine}, func(e *ops.ProxyEngine) []string {
		return []string{e.Version}
	})
}

// proxyMetrics makes the families of services of mode proxy.
func proxyMetrics(services []ops.Service) []metricFamily {
	var these []*ops.Service
	var all []responseCount
	for i := range services {
		p := services[i].Proxy
		if p == nil {
			continue
		}
		these = append(these, &services[i])
		for _, class := range []struct {
			name string
			n    uint64
		}{{"1xx", p.Responses.Informational}, {"2xx", p.Responses.Successful}, {"3xx", p.Responses.Redirection},
			{"4xx", p.Responses.ClientError}, {"5xx", p.Responses.ServerError}, {"other", p.Responses.Other}} {
			all = append(all, responseCount{services[i].Name, class.name, class.n})
		}
	}
	families := series(proxyFamilies, these, func(s *ops.Service) []string { return []string{s.Name} })
	return append(families, series([]metric[responseCount]{responsesTotal}, all, func(r responseCount) []string {
		return []string{r.service, r.class}
	})...)
}
