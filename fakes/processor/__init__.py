"""A fake payment processor: what it promises to its callers, on one screen.

    POST /v1/charges   {"customer", "invoice", "amount", "currency", "intent"?}  ->  201 the charge
    GET  /v1/charges?customer=&invoice=   or   ?intent=                           ->  200 {"data": [charge, ...]}
    POST /v1/intents/{id}/void                                                    ->  200 {"voided": true}

A charge request is looked at in this order; the first thing that is wrong is the answer:

1. its form: 404, 405, 415, 413, 400 with the field in "param". Nothing has happened yet.
2. Fencing-Token raises the customer's mark. From here on the request has arrived, and it runs to its end whether or
   not its caller is still there.
3. rate-limit, when told to: 429.
4. Idempotency-Key: 409 idempotency_key_in_use while an earlier request with that key has not been decided; the stored
   answer with 200 and "Idempotent-Replayed: true" (409 idempotency_mismatch for other parameters) once it committed.
   Before the token is compared: the question "what became of this key?" has one answer, whoever asks.
5. Fencing-Token against the mark (409 stale_fencing_token), then the intent (409 intent_voided, intent_charged).
6. the latency before the commit; 500 or 402, when told to.
7. the commit: 5 once more, in one transaction with the insert.
8. the latency after the commit, and the answer.

What is left open by the rules above is decided like this:

- A key belongs to the account, not to a customer (as at Stripe), and is kept for 24 hours from the commit unless a rule
  says otherwise; after that it makes a new charge. The parameters that must agree are the five of the body.
- What is stored under a key is a committed charge, never a refusal or an error (Checkout.com's rule: only 2xx; Stripe
  also stores a 402 and a 500). So 402, 409, 429 and a 500 before the commit may be asked again under the same key, and
  after a 500 or a silence behind a commit the stored answer is the 201.
- An intent is charged once. A second charge under it gets 409 intent_charged with the first, without any key.
- An unknown field, a field given twice, a query parameter given twice are refused: a misspelt "intent" must not charge.
- A token can be sent with a read only if the read names a customer: an intent that has no charge has no mark to raise.
- The one 5xx that nobody asked for is 503 ledger_unavailable: the ledger itself cannot be read or written.
"""
