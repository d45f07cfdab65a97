// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// annotation marks in every figure when something happened. Prometheus has no events, but shows when a counter or a
// state
// changed: the mark is as exact as its scrapes.
type annotation struct{ name, colour, expression, title, text string }

// annotations are marks of events that explain a bend in a figure. Each can be switched off at the head of the
// dashboard.
func annotations() []annotation {
	const recent = `}[2m]) > 0`
	return []annotation{
		{
			"Starts",
			"blue",
			`changes(process_start_time_seconds{` + anyInstance + recent + ` and on (instance) jeoul_build_info`,
			"{{instance}} was started",
			"",
		},
		{
			"Reloads",
			"purple",
			`increase(jeoul_reloads_total{` + anyInstance + recent,
			"{{instance}}: configuration {{result}}",
			"",
		},
		{"Operations", "yellow", `changes(jeoul_operations_in_force{` + anyInstance + recent,
			"{{instance}}: an operation",
			"A backend was drained, enabled or weighted"},
		{
			"Backends",
			"orange",
			`changes(jeoul_service_backends_up{` + ofServices + recent,
			"{{service}}: backends up or down",
			"{{instance}}",
		},
		{
			"VRRP",
			"red",
			`increase(jeoul_vrrp_changes_total{` + anyInstance + recent,
			"{{instance}}: VRRP changes its state",
			"{{vrid}}",
		},
		{
			"Routers",
			"red",
			`changes(jeoul_bgp_peer_established{` + anyInstance + recent,
			"{{instance}}: a session with {{peer}}",
			"",
		},
		{"Members", "red", `changes(jeoul_member_up{` + anyInstance + recent, "{{instance}}: member {{member}}", ""},
	}
}

// annotate adds the annotations.
//
//lint:ignore SA1019 see build
func annotate(builder *dashboard.DashboardBuilder) {
	for _, a := range annotations() {
		builder.Annotation(
			dashboard.NewAnnotationQueryBuilder().Name(a.name).Datasource(source()).IconColor(a.colour).Enable(true).
				Expr(a.expression).Step("1m").TitleFormat(a.title).TextFormat(a.text),
		)
	}
}
