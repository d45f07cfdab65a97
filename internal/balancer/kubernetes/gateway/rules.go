// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"

	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// checkRule refuses a rule of an HTTPRoute for its first unsupported field: the proxy matches by host and path prefix
// only.
func checkRule(rule *v1.HTTPRouteRule, i int) verdict {
	at := fmt.Sprintf("spec.rules[%d]", i)
	refuse := func(what string) verdict {
		return refused(v1.RouteReasonUnsupportedValue,
			"%s.%s is not served; only hostname and PathPrefix are supported", at, what)
	}
	switch {
	case len(rule.Filters) > 0:
		return refuse("filters")
	case rule.Timeouts != nil:
		return refuse("timeouts")
	case rule.Retry != nil:
		return refuse("retry")
	case rule.SessionPersistence != nil:
		return refuse("sessionPersistence")
	}
	for j := range rule.Matches {
		m := &rule.Matches[j]
		switch {
		case m.Path != nil && valueOr(m.Path.Type, v1.PathMatchPathPrefix) != v1.PathMatchPathPrefix:
			return refuse(fmt.Sprintf("matches[%d].path.type", j))
		case m.Path != nil && strings.ContainsAny(valueOr(m.Path.Value, "/"), " \t\r\n\"'\\#$"):
			return refuse(fmt.Sprintf("matches[%d].path.value", j))
		case len(m.Headers) > 0:
			return refuse(fmt.Sprintf("matches[%d].headers", j))
		case len(m.QueryParams) > 0:
			return refuse(fmt.Sprintf("matches[%d].queryParams", j))
		case m.Method != nil:
			return refuse(fmt.Sprintf("matches[%d].method", j))
		}
	}
	for j := range rule.BackendRefs {
		if len(rule.BackendRefs[j].Filters) > 0 {
			return refuse(fmt.Sprintf("backendRefs[%d].filters", j))
		}
	}
	return verdict{}
}

func backendRefs(rule *v1.HTTPRouteRule) []v1.BackendRef {
	refs := make([]v1.BackendRef, len(rule.BackendRefs))
	for i := range rule.BackendRefs {
		refs[i] = rule.BackendRefs[i].BackendRef
	}
	return refs
}
