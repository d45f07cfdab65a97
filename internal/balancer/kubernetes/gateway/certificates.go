// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// resolveCertificates finds the certificates of an HTTPS listener. A listener with an unusable one is not served:
// clients would get another certificate.
func (p *Plan) resolveCertificates(g *v1.Gateway, l *listener) {
	t := l.spec.TLS
	if t == nil || valueOr(t.Mode, v1.TLSModeTerminate) != v1.TLSModeTerminate {
		l.accepted = refused(v1.ListenerReasonUnsupportedValue,
			"tls.mode: a listener of protocol HTTPS ends TLS; use Terminate")
		return
	}
	if clientValidation(g, l.spec.Port) != nil { // clients without a certificate would get in
		l.accepted = refused(v1.ListenerReasonUnsupportedValue, "spec.tls.frontend: the balancer cannot "+
			"validate certificates of clients; remove it, or let backends end TLS, behind a listener of protocol TCP")
		return
	}
	for i := range t.CertificateRefs {
		file, text, problem := p.certificate(g, &t.CertificateRefs[i])
		if !problem.ok() {
			l.resolved = problem
			l.certificates = nil
			return
		}
		p.Certificates[file] = text
		l.certificates = append(l.certificates, file)
	}
	if len(l.certificates) == 0 {
		l.resolved = refused(v1.ListenerReasonInvalidCertificateRef,
			"tls.certificateRefs: an HTTPS listener needs a certificate")
	}
}

// clientValidation returns how the certificates of a port's clients are to be validated; nil: clients need none.
func clientValidation(g *v1.Gateway, port v1.PortNumber) *v1.FrontendTLSValidation {
	if g.Spec.TLS == nil || g.Spec.TLS.Frontend == nil {
		return nil
	}
	for _, p := range g.Spec.TLS.Frontend.PerPort { // which overrides the default, also by having no validation
		if p.Port == port {
			return p.TLS.Validation
		}
	}
	return g.Spec.TLS.Frontend.Default.Validation
}

// certificate returns the file of a certificate, and its content.
func (p *Plan) certificate(g *v1.Gateway, ref *v1.SecretObjectReference) (file string, text []byte, problem verdict) {
	namespace, name := string(valueOr(ref.Namespace, v1.Namespace(g.Namespace))), string(ref.Name)
	if valueOr(ref.Group, "") != "" || valueOr(ref.Kind, "Secret") != "Secret" {
		return "", nil, refused(v1.ListenerReasonInvalidCertificateRef,
			"tls.certificateRefs: certificates are in Secrets, not in %s/%s",
			valueOr(ref.Group, ""), valueOr(ref.Kind, ""))
	}
	if !granted(p.objects.Grants, reference{"Gateway", g.Namespace, "Secret", namespace, name}) {
		return "", nil, refused(v1.ListenerReasonRefNotPermitted,
			"tls.certificateRefs: no ReferenceGrant of namespace %s lets Gateways of %s refer to Secret %s",
			namespace, g.Namespace, name)
	}
	at := slices.IndexFunc(p.objects.Secrets, func(s *corev1.Secret) bool {
		return s.Namespace == namespace &&
			s.Name == name
	})
	if at < 0 {
		return "", nil, refused(v1.ListenerReasonInvalidCertificateRef,
			"tls.certificateRefs: there is no Secret %s/%s of type %s",
			namespace, name, corev1.SecretTypeTLS)
	}
	certificate, key := p.objects.Secrets[at].Data[corev1.TLSCertKey],
		p.objects.Secrets[at].Data[corev1.TLSPrivateKeyKey]
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		return "", nil, refused(v1.ListenerReasonInvalidCertificateRef, "tls.certificateRefs: Secret %s/%s: %v",
			namespace,
			name, err)
	}
	text = append(append(slices.Clone(certificate), '\n'), key...)
	// Neither name has an underscore.
	return namespace + "_" + name + ".pem", text, verdict{}
}
