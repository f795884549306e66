-- At this scale the queries' parameters meet hardly a row: one store, one warehouse, customers who buy once.
-- What follows puts more values into the small tables, and brings customers, items and places together.

INSERT INTO store SELECT store.* REPLACE (k AS s_store_sk, 'STORE' || k AS s_store_id)
FROM store, range(2, 13) numbers(k);
UPDATE store SET
  s_store_name = ['ought', 'able', 'ese', 'anti', 'eing', 'bar'][1 + s_store_sk % 6],
  s_county = ['Williamson County', 'Franklin Parish', 'Bronx County', 'Orange County'][1 + s_store_sk % 4],
  s_zip = ['24128', '76232', '35709', '31904'][1 + s_store_sk % 4],
  s_city = ['Midway', 'Fairview'][1 + s_store_sk % 2],
  s_market_id = 6 + s_store_sk % 4,
  s_number_employees = 190 + 10 * s_store_sk,
  s_company_id = 1 + s_store_sk % 2;
UPDATE store_sales SET ss_store_sk = 1 + ss_ticket_number % 12 WHERE ss_store_sk IS NOT NULL;
UPDATE store_returns SET sr_store_sk = 1 + sr_ticket_number % 12 WHERE sr_store_sk IS NOT NULL;

INSERT INTO reason SELECT k, 'REASON' || k, 'reason ' || k FROM range(2, 36) numbers(k);
UPDATE store_returns SET sr_reason_sk = 1 + (sr_ticket_number + sr_item_sk) % 35;
UPDATE catalog_returns SET cr_reason_sk = 1 + (cr_order_number + cr_item_sk) % 35;
UPDATE web_returns SET wr_reason_sk = 1 + (wr_order_number + wr_item_sk) % 35;

INSERT INTO warehouse SELECT warehouse.* REPLACE (k AS w_warehouse_sk, 'WAREHOUSE' || k AS w_warehouse_id, 'Name of house ' || k AS w_warehouse_name)
FROM warehouse, range(2, 6) numbers(k);
UPDATE inventory SET inv_warehouse_sk = 1 + inv_item_sk % 5;
UPDATE inventory SET inv_quantity_on_hand = inv_quantity_on_hand // 40 WHERE inv_date_sk // 7 % 4 > 0 AND inv_item_sk % 10 = 0;
UPDATE catalog_sales SET cs_warehouse_sk = 1 + (cs_order_number + cs_item_sk) % 5 WHERE cs_warehouse_sk IS NOT NULL;
UPDATE web_sales SET ws_warehouse_sk = 1 + (ws_order_number + ws_item_sk) % 5 WHERE ws_warehouse_sk IS NOT NULL;

INSERT INTO call_center SELECT call_center.* REPLACE (k AS cc_call_center_sk, 'CENTER' || k AS cc_call_center_id, 'Center ' || k AS cc_name)
FROM call_center, range(2, 4) numbers(k);
UPDATE catalog_sales SET cs_call_center_sk = 1 + cs_order_number % 3 WHERE cs_call_center_sk IS NOT NULL;
UPDATE catalog_returns SET cr_call_center_sk = 1 + cr_order_number % 3 WHERE cr_call_center_sk IS NOT NULL;

INSERT INTO web_site SELECT web_site.* REPLACE (k AS web_site_sk, 'SITE' || k AS web_site_id, 'site_' || k AS web_name, ['pri', 'able'][1 + k % 2] AS web_company_name)
FROM web_site, range(2, 7) numbers(k);
UPDATE web_sales SET ws_web_site_sk = 1 + ws_order_number % 6 WHERE ws_web_site_sk IS NOT NULL;
UPDATE web_page SET wp_char_count = 5000 + 60 * wp_web_page_sk;

UPDATE promotion SET
  p_channel_dmail = ['Y', 'N'][1 + p_promo_sk % 2],
  p_channel_email = ['N', 'Y'][1 + p_promo_sk // 2 % 2],
  p_channel_event = ['Y', 'N'][1 + p_promo_sk // 4 % 2],
  p_channel_tv = ['N', 'Y'][1 + p_promo_sk % 3 % 2];

UPDATE item SET
  i_manufact_id = [977, 350, 677, 940, 694, 808, 129, 270, 821, 423, 738, 750][1 + i_item_sk * 7 // 11 % 12],
  i_manufact = ['ought', 'able', 'pri', 'ese', 'anti'][1 + i_item_sk * 7 // 11 % 5]
WHERE i_item_sk % 5 < 3;
UPDATE item SET i_category = 'Women', i_color = 'powder', i_units = 'Ounce', i_size = 'medium', i_manufact = 'pri' WHERE i_item_sk % 50 = 0;
UPDATE item SET i_current_price = 70 + i_item_sk % 20 WHERE i_item_sk % 9 IN (0, 4);
UPDATE item SET i_color = 'peach' WHERE i_item_sk % 20 = 1;
UPDATE item SET i_color = 'purple', i_current_price = 65 + i_item_sk % 10 WHERE i_item_sk % 20 = 2;
UPDATE item SET i_category = 'Women', i_class = 'maternity' WHERE i_item_sk % 20 = 3;

UPDATE customer_address SET ca_zip = ['24128', '76232', '35709'][1 + ca_address_sk // 8 % 3] WHERE ca_address_sk % 8 = 0;
UPDATE customer_address SET ca_county = ['Rush County', 'Toole County', 'Jefferson County'][1 + ca_address_sk // 8 % 3] WHERE ca_address_sk % 8 = 3;
UPDATE customer_address SET ca_county = ['Williamson County', 'Franklin Parish'][1 + ca_address_sk // 8 % 2], ca_state = 'TN' WHERE ca_address_sk % 8 = 5;
UPDATE customer_address SET ca_state = 'KY', ca_county = 'Walker County' WHERE ca_address_sk % 8 IN (1, 2);
UPDATE customer_address SET ca_state = 'IN' WHERE ca_address_sk % 8 = 4;
UPDATE customer_address SET ca_gmt_offset = -7 WHERE ca_address_sk % 8 = 6;
UPDATE customer_address SET ca_state = 'IL' WHERE ca_address_sk % 8 = 7;

UPDATE customer_demographics SET cd_marital_status = 'S', cd_education_status = 'College' WHERE cd_demo_sk % 4 < 2;
UPDATE customer_demographics SET cd_marital_status = 'W', cd_education_status = 'Advanced Degree' WHERE cd_demo_sk % 8 = 2;
UPDATE customer_demographics SET cd_education_status = 'Unknown' WHERE cd_demo_sk % 8 = 3;
UPDATE household_demographics SET hd_dep_count = 1 WHERE hd_demo_sk % 3 = 0;
UPDATE household_demographics SET hd_buy_potential = 'Unknown' WHERE hd_demo_sk % 4 = 1;

UPDATE store_sales SET ss_customer_sk = 1 + ss_customer_sk % 500;
UPDATE store_returns SET sr_customer_sk = 1 + sr_customer_sk % 500;
UPDATE catalog_sales SET cs_bill_customer_sk = 1 + cs_bill_customer_sk % 500, cs_ship_customer_sk = 1 + cs_ship_customer_sk % 500;
UPDATE catalog_returns SET cr_returning_customer_sk = 1 + cr_returning_customer_sk % 500, cr_refunded_customer_sk = 1 + cr_refunded_customer_sk % 500;
UPDATE web_sales SET ws_bill_customer_sk = 1 + ws_bill_customer_sk % 500, ws_ship_customer_sk = 1 + ws_ship_customer_sk % 500;
UPDATE web_returns SET wr_returning_customer_sk = 1 + wr_returning_customer_sk % 500, wr_refunded_customer_sk = 1 + wr_refunded_customer_sk % 500;
UPDATE web_returns SET wr_returning_cdemo_sk = wr_refunded_cdemo_sk;

-- Days on which the same customers buy everywhere, and much of the same.
UPDATE store_sales SET ss_sold_date_sk = 2451545 + ss_customer_sk % 5 WHERE ss_ticket_number % 20 = 0;
UPDATE catalog_sales SET cs_sold_date_sk = 2451545 + cs_bill_customer_sk % 5 WHERE cs_order_number % 20 = 0;
UPDATE web_sales SET ws_sold_date_sk = 2451545 + ws_bill_customer_sk % 5 WHERE ws_order_number % 20 = 0;
UPDATE store_sales SET ss_item_sk = 1 + ss_item_sk % 30 WHERE ss_sold_date_sk IN (2451576, 2451577);
UPDATE catalog_sales SET cs_item_sk = 1 + cs_item_sk % 30 WHERE cs_sold_date_sk BETWEEN 2451576 AND 2451603;
UPDATE store_sales SET ss_hdemo_sk = 1 + (ss_hdemo_sk + ss_item_sk) % 7200 WHERE ss_ticket_number % 7 = 0;

-- Days of these three lie in the weeks that query 83 asks for.
UPDATE store_returns SET sr_returned_date_sk = [2451726, 2451815, 2451866][1 + sr_item_sk % 3] WHERE sr_ticket_number % 10 = 0;
UPDATE catalog_returns SET cr_returned_date_sk = [2451726, 2451815, 2451866][1 + cr_item_sk % 3] WHERE cr_order_number % 10 = 0;
UPDATE web_returns SET wr_returned_date_sk = [2451726, 2451815, 2451866][1 + wr_item_sk % 3] WHERE wr_order_number % 10 = 0;
UPDATE catalog_returns SET cr_returned_date_sk = 2451120 WHERE cr_order_number % 10 = 1;
